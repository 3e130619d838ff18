import { StoreError, type StoreErrorCode } from "./store-error.ts";

/** SQLite's primary result codes that have a meaning of their own for us. */
const codes: Readonly<Record<number, StoreErrorCode>> = {
  5: "locked",
  8: "read-only",
  11: "corrupt",
  13: "full",
  14: "read-only",
  26: "corrupt",
};

const explanations: Partial<Record<StoreErrorCode, string>> = {
  locked: "is in use by another process; stop that one first",
  full: "cannot grow: the disk or its limit is full; free some space",
  "read-only": "cannot be written; check the permissions and the mount",
  corrupt: "is damaged; restore it from a backup",
};

/** Turns an error of SQLite into ours; anything else passes through. */
export function storeErrorOf(error: unknown, path: string): unknown {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return error;
  const primary = error.errcode & 0xff;
  const code = codes[primary] ?? "failed";
  const explanation = explanations[code] ?? `failed with SQLite code ${error.errcode}`;
  return new StoreError(code, `store ${path} ${explanation}`, { cause: error });
}

/** Runs `action` and rethrows what SQLite throws as a `StoreError`. */
export function withStoreErrors<R>(path: string, action: () => R): R {
  try {
    return action();
  } catch (error) {
    throw storeErrorOf(error, path);
  }
}
