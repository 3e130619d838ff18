import { Sandbox } from "@agent-sandbox/sdk";

const box = await Sandbox.create();
try {
  console.log((await box.run("echo hello from $(uname -s)")).stdout.trim());
  await box.files.upload("/etc/debian_version", "/tmp/folder/copied");
  await box.files.write("/tmp/folder/b.txt", "kept");
  console.log(await box.files.readText("/tmp/folder/b.txt"));
} finally {
  await box.delete();
}
