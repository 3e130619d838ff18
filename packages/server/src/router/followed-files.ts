import { type FSWatcher, watch } from "node:fs";
import path from "node:path";

/** Files of one change are replaced one after the other: they are read once all are there. */
const debounceMs = 250;

/** Calls back a moment after any of the files was replaced, as editors and as a cluster's mounts do it; dispose it to stop. */
export function followFiles(files: readonly string[], onChange: () => void): Disposable {
  let timer: NodeJS.Timeout | undefined;
  const schedule = (): void => {
    clearTimeout(timer);
    timer = setTimeout(onChange, debounceMs);
  };
  const watchers = [...new Set(files.map((file) => path.dirname(file)))].map((directory): FSWatcher => {
    const names = new Set(files.filter((file) => path.dirname(file) === directory).map((file) => path.basename(file)));
    // Secrets are swapped by a link whose name begins with two dots; everything else is replaced under its own name.
    return watch(directory, { persistent: false }, (_event, name) => {
      if (name === null || name.startsWith("..") || names.has(name)) schedule();
    });
  });
  return {
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      for (const watcher of watchers) watcher.close();
    },
  };
}
