// Answers with what it has in memory: how often each of its timers came, and a number that it drew when it started.
import { createServer } from "node:http";
import { performance } from "node:perf_hooks";

const drawn = Math.random();
const timers = { interval: 0, chain: 0 };
let answered = 0;
setInterval(() => (timers.interval += 1), 20);
const chain = () => {
  timers.chain += 1;
  setTimeout(chain, 50);
};
chain();
createServer((request, response) => {
  answered += 1;
  const state = { pid: process.pid, drawn, answered, ...timers, wallMs: Date.now(), monotonicMs: performance.now() };
  const body = JSON.stringify(state);
  response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) }).end(body);
}).listen(8000, "0.0.0.0");
