// Runs every test file of this folder. The files are named one by one: Node 18 reads no patterns.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = dirname(fileURLToPath(import.meta.url));
const files = readdirSync(folder).filter((name) => name.endsWith(".test.js"));
const finished = spawnSync(process.execPath, ["--test", ...files.sort().map((name) => join(folder, name))], {
  stdio: "inherit",
});
process.exitCode = finished.status ?? 1;
