// Everything heavier than a version number is loaded on demand, so that small commands stay fast.
const [first] = process.argv.slice(2);

if (first === "--version" || first === "-V") {
  const { readVersion } = await import("@agent-sandbox/server/main/version");
  process.stdout.write(`${readVersion()}\n`);
} else {
  const { runCommandLine } = await import("./command-line.ts");
  await runCommandLine(process.argv.slice(2));
}
