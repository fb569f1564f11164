// Network interruptions: a relay between a client and a node that can interrupt connections.
//
// `cut` closes all connections and accepts no new ones, like an unplugged cable that the system notices. `silence` leaves them open
// and forwards nothing, like one that it does not notice. `restore` ends both; bytes held meanwhile are discarded. `plain` is a proxy
// without WebSocket: it refuses connections that begin with a WebSocket request.

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
    restore() {
      if (!passing) drop();
      taking = passing = true;
    },
    close() {
      drop();
      server.close();
    },
  };
}
