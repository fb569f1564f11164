//! Light, dark, or as the system has it. An ordinary script in the head: a module would come after the first paint, and a
//! dark room would see a white flash. The trap: storage may be refused; then the choice lasts as long as the page.
(() => {
  const key = "throng-theme";
  let choice = "";
  try {
    choice = localStorage.getItem(key) ?? "";
  } catch {
    // As the system has it.
  }
  const apply = () => {
    if (choice) document.documentElement.dataset.theme = choice;
    else delete document.documentElement.dataset.theme;
  };
  apply();
  window.theme = {
    get choice() {
      return choice;
    },
    set choice(name) {
      choice = name;
      apply();
      try {
        localStorage.setItem(key, name);
      } catch {
        // For this page only.
      }
    },
  };
})();
