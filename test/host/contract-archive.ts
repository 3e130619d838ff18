import { expect } from "vitest";
import { type ContractCase, expectCode } from "./contract-case.ts";

/** What every helper does with archives. */
export const archiveCases: readonly ContractCase[] = [
  {
    title: "packArchive: an image comes back out of its parts, and nothing else is taken for one",
    async run({ host, putBlob }) {
      await host.ensureEmptyDir({ id: "first", sizeBytes: 16 << 20 });
      await host.cloneImage({ kind: "empty-dir", from: "first", to: "still", pauseMaxMs: 10_000 });
      const pack = { id: "left", files: [{ kind: "empty-dir", id: "still" }], part: 0 } as const;
      expect(await host.packArchive(pack)).toBeUndefined();
      await expectCode("not-found", host.sealArchive({ id: "left", entry: {} }));
      await expectCode("not-found", host.packArchive({ ...pack, files: [{ kind: "volume", id: "none" }], to: "part" }));
      const part = await host.packArchive({ ...pack, to: "part" });
      expect(part).toMatchObject({ last: true });
      expect([await host.packArchive(pack), await host.packArchive({ ...pack, to: "part" })]).toEqual([part, part]);
      await expectCode("already-exists", host.packArchive({ ...pack, files: [], to: "part" }));
      await expectCode("invalid-argument", host.packArchive({ ...pack, part: 1, to: "part" }));
      const { sealed } = await host.sealArchive({ id: "left", entry: { name: "a" } });
      expect(await host.openArchive({ id: "left", sealed })).toMatchObject({ entry: { name: "a" }, parts: [part] });
      await expectCode("digest-mismatch", host.openArchive({ id: "other", sealed }));
      for (let times = 0; times < 2; times += 1) await host.forgetArchive({ id: "left" });
      expect(await host.packArchive(pack)).toBeUndefined();
      const unpack = { id: "left", sealed, files: [{ kind: "empty-dir", id: "back" }], part: 0 } as const;
      await expectCode("not-found", host.unpackArchive({ ...unpack, from: "part" }));
      await expectCode("invalid-argument", host.unpackArchive({ ...unpack, files: [{ kind: "volume", id: "back" }] }));
      expect(await host.unpackArchive(unpack)).toEqual({ part: 0 });
      await putBlob("damaged", new Uint8Array(part?.sizeBytes ?? 0));
      await expectCode("digest-mismatch", host.unpackArchive({ ...unpack, from: "damaged" }));
      expect(await host.unpackArchive({ ...unpack, from: "part" })).toEqual({ part: 1, done: true });
      await host.ensureEmptyDir({ id: "back", sizeBytes: 16 << 20 });
      expect((await host.listEmptyDirs()).map(({ id }) => id)).toContain("back");
      for (const id of ["first", "still", "back"]) await host.removeEmptyDir({ id });
    },
  },
];
