import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { ensureSchema, storeFormat } from "./schema.ts";

test.each([storeFormat - 1, storeFormat + 1])(
  "ensureSchema: a file of format %i is refused, older or newer",
  (format) => {
    using database = new DatabaseSync(":memory:");
    ensureSchema(database, "store.sqlite");
    ensureSchema(database, "store.sqlite");
    database.exec(`PRAGMA user_version = ${format}`);
    expect(() => ensureSchema(database, "store.sqlite")).toThrow(
      `store.sqlite has format ${format}, and this version of agent-sandbox reads format ${storeFormat} alone; start it with the version that wrote it`,
    );
  },
);
