import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { Sealer, unseal } from "./sealed.ts";

/** Guesses need not be slow in a test. */
const cost = 2;
const headBytes = 76;
const sealedPieceBytes = 64 * 1024 + 16;

async function sealed(plain: Uint8Array, passphrase = "open sesame"): Promise<Buffer> {
  const written: Uint8Array[] = [];
  const sealer = await Sealer.open(async (bytes) => void written.push(bytes), passphrase, { cost });
  for (let at = 0; at < plain.length; at += 10_000) await sealer.write(plain.subarray(at, at + 10_000));
  await sealer.finish();
  return Buffer.concat(written);
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

async function opened(bytes: Uint8Array, passphrase = "open sesame"): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of unseal(once(bytes), passphrase)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

test.each([0, 1, 65_535, 65_536, 65_537, 131_072, 200_000])("sealed: %i bytes come back", async (length) => {
  const plain = randomBytes(length);
  expect((await opened(await sealed(plain))).equals(plain)).toBe(true);
});

test("sealed: nothing of the content, and no two files alike", async () => {
  const plain = Buffer.alloc(1000, "secret ");
  const [one, two] = [await sealed(plain), await sealed(plain)];
  expect(one.includes("secret")).toBe(false);
  expect(one.equals(two)).toBe(false);
});

test("sealed: another passphrase is told as such", async () => {
  await expect(opened(await sealed(Buffer.from("x")), "open barley")).rejects.toMatchObject({ code: "passphrase" });
});

test("sealed: pieces that are left out, moved, doubled or cut off are noticed", async () => {
  const whole = await sealed(randomBytes(4 * 64 * 1024));
  const head = whole.subarray(0, headBytes);
  const pieces = [0, 1, 2, 3].map((n) =>
    whole.subarray(headBytes + n * sealedPieceBytes).subarray(0, sealedPieceBytes),
  );
  const [a, b, c, d] = pieces as [Buffer, Buffer, Buffer, Buffer];
  expect((await opened(Buffer.concat([head, a, b, c, d]))).length).toBe(4 * 64 * 1024);
  const wrong = [
    [a, b, c],
    [a, b],
    [b, c, d],
    [a, c, b, d],
    [a, a, b, c, d],
    [a, b, c, d, d],
    [a, b, c, d.subarray(0, -1)],
    [],
  ];
  for (const order of wrong)
    await expect(opened(Buffer.concat([head, ...order]))).rejects.toMatchObject({ code: "damaged" });
});

test("sealed: any changed byte is noticed", async () => {
  const whole = await sealed(Buffer.from("a few bytes"));
  for (let at = 0; at < whole.length; at += 1) {
    const changed = Buffer.from(whole);
    changed[at] = (changed[at] ?? 0) ^ 1;
    // A changed cost would only make the guess slower.
    if (at === 16) continue;
    await expect(opened(changed), `byte ${at}`).rejects.toMatchObject({ name: "BackupError" });
  }
});
