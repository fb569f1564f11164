// Opens the report of a load run in Debian's Chromium and reports layout problems.
//
// usage: look.js REPORT.html FOLDER     writes screenshots (wide-light.png, wide-dark.png, phone-light.png,
//                                       phone-dark.png) and paper.pdf to FOLDER; prints a JSON object with an entry for each view
//
//   BROWSER_MODULES  folder with the node_modules of setup.sh
//   BROWSER          browser; default: chromium
//
// The page must be self-contained: the browser is offline, and every request except the file itself is reported. A page that is
// wider than its window is reported with the overflowing elements that are not inside a scrolling box.
// Pitfall: file:// pages have an opaque origin, so a request that a server would allow may already fail in the page.

import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [file, folder] = process.argv.slice(2);
if (!file || !folder || !process.env.BROWSER_MODULES) {
  console.error("usage: BROWSER_MODULES=… look.js REPORT.html FOLDER");
  process.exit(2);
}
const require = createRequire(path.join(process.env.BROWSER_MODULES, "package.json"));
const { chromium } = require("playwright-core");
const page_url = pathToFileURL(path.resolve(file)).href;

const views = [
  { name: "wide-light", width: 1280, height: 900, colorScheme: "light" },
  { name: "wide-dark", width: 1280, height: 900, colorScheme: "dark" },
  { name: "phone-light", width: 360, height: 740, colorScheme: "light" },
  { name: "phone-dark", width: 360, height: 740, colorScheme: "dark" },
];

// Runs in the page.
function facts() {
  const root = document.documentElement;
  const scrolls = (element) => {
    for (let box = element.parentElement; box; box = box.parentElement) {
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return true;
    }
    return false;
  };
  const out = [...document.body.querySelectorAll("*")].filter((element) => {
    const { right, width } = element.getBoundingClientRect();
    return width > 0 && right > root.clientWidth + 1 && !scrolls(element);
  });
  const describe = (element) => `${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""}`;
  const color = (name) => getComputedStyle(document.body)[name].match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = ([r, g, b]) => (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
  return {
    window: root.clientWidth,
    content: root.scrollWidth,
    out: [...new Set(out.map(describe))].slice(0, 10),
    ground: light(color("backgroundColor")),
    ink: light(color("color")),
    heading: document.querySelector("h1")?.innerText ?? "",
    charts: [...document.querySelectorAll("figure svg.plot")].filter((svg) => svg.querySelector("path, polyline, circle")).length,
    tables: [...document.querySelectorAll("table")].map((table) => table.rows.length),
    text: document.body.innerText,
  };
}

mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.BROWSER ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
const seen = {};
for (const { name, width, height, colorScheme } of views) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, offline: true });
  const page = await context.newPage();
  const requests = [];
  const complaints = [];
  page.on("request", (request) => requests.push(request.url()));
  page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  await page.goto(page_url, { waitUntil: "load" });
  // What the page does when somebody points at each of its charts belongs to it, too.
  for (const chart of await page.locator("figure svg.plot").all()) {
    if (await chart.isVisible()) await chart.hover({ force: true });
  }
  await page.mouse.move(0, 0);
  const found = await page.evaluate(facts);
  await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true });
  const others = requests.filter((url) => url !== page_url && !url.startsWith("data:"));
  seen[name] = { ...found, requests: others, complaints };
  if (name === "wide-light") {
    await page.pdf({ path: path.join(folder, "paper.pdf"), format: "A4", printBackground: true, preferCSSPageSize: true });
  }
  await context.close();
}
await browser.close();
console.log(JSON.stringify(seen));
