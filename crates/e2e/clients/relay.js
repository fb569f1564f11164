// A network that can be lost: a relay of bytes between a client and a node, which may cut what goes through it.
//
// `cut` ends all connections and takes no new ones, as when a cable is pulled and the system notices; `silence` leaves them open
// and passes nothing, as when it does not; `mend` ends what is left of both. `plain` is a proxy that knows no WebSocket: it
// passes only connections that do not begin with a request for one. Bytes that were held are thrown away by `mend`.

import net from "node:net";

export async function relay(host, port) {
  const pairs = new Set();
  let passing = true;
  let taking = true;
  let plain = false;
  const server = net.createServer((near) => {
    if (!taking) return near.destroy();
    const far = net.connect(port, host);
    const pair = [near, far];
    pairs.add(pair);
    near.once("data", (bytes) => {
      if (plain && /^upgrade:/im.test(bytes.toString("latin1"))) near.end("HTTP/1.1 501 Not Implemented\r\ncontent-length: 0\r\n\r\n");
    });
    for (const [from, to] of [[near, far], [far, near]]) {
      from.setNoDelay(true);
      from.on("data", (bytes) => passing && to.write(bytes));
      from.on("end", () => passing && to.end());
      from.on("error", () => {});
      from.on("close", () => {
        pairs.delete(pair);
        if (passing) to.destroy();
      });
    }
  });
  const drop = () => {
    for (const pair of pairs) for (const socket of pair) socket.resetAndDestroy();
    pairs.clear();
  };
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    port: server.address().port,
    cut() {
      taking = false;
      drop();
    },
    silence() {
      passing = false;
    },
    plain(only) {
      plain = only;
    },
    mend() {
      if (!passing) drop();
      taking = passing = true;
    },
    close() {
      drop();
      server.close();
    },
  };
}
