import { createCipheriv, createDecipheriv, createHmac, randomBytes, scrypt, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import { BackupError } from "./backup-error.ts";
import { ByteSource } from "./byte-source.ts";

// A sealed file is a header, its authentication code, and pieces of one length, the last of which may be shorter. Each piece is sealed with
// AES-256-GCM; its nonce has its number and whether it is the last, so that none can be left out, moved or added.

const derive = promisify<string, Buffer, number, object, Buffer>(scrypt);

const magic = Buffer.from("ASBX-BACKUP-ENC1");
const saltBytes = 16;
const noncePrefixBytes = 7;
const headerBytes = magic.length + 4 + saltBytes + noncePrefixBytes + 1;
const codeBytes = 32;
const keyBytes = 32;
const tagBytes = 16;
/** Small against memory, large against the tag of each piece. */
const pieceBytes = 64 * 1024;

/** scrypt with 2^17 takes 128 MiB and a good part of a second for each guess. */
const costDefault = 17;
const blockSize = 8;
const parallel = 1;
/** A header from elsewhere may ask for no more than a gigabyte. */
const costMax = 20;

/** Whether a file that begins with these bytes is sealed. */
export function isSealed(head: Uint8Array): boolean {
  return magic.equals(head.subarray(0, magic.length));
}

/** How many bytes `isSealed` looks at. */
export const sealedMagicBytes = magic.length;

interface Keys {
  readonly seal: Buffer;
  readonly noncePrefix: Buffer;
  /** Header and its code, in front of the pieces. */
  readonly head: Buffer;
}

/** Takes what is to be sealed and writes it sealed; `finish` writes the last piece. */
export class Sealer {
  readonly #write: (bytes: Uint8Array) => Promise<void>;
  readonly #keys: Keys;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #number = 0;

  private constructor(write: (bytes: Uint8Array) => Promise<void>, keys: Keys) {
    this.#write = write;
    this.#keys = keys;
  }

  static async open(
    write: (bytes: Uint8Array) => Promise<void>,
    passphrase: string,
    { cost = costDefault } = {},
  ): Promise<Sealer> {
    const parameters = Buffer.from([cost, blockSize, parallel, 0]);
    const prefix = randomBytes(noncePrefixBytes);
    const header = Buffer.concat([magic, parameters, randomBytes(saltBytes), prefix, Buffer.alloc(1)]);
    const keys = await keysOf(header, passphrase);
    await write(keys.head);
    return new Sealer(write, keys);
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    if (this.#pendingBytes <= pieceBytes) return;
    const all = Buffer.concat(this.#pending);
    let at = 0;
    // One piece is kept back: only the end tells whether it is the last.
    for (; all.length - at > pieceBytes; at += pieceBytes) await this.#seal(all.subarray(at, at + pieceBytes), false);
    this.#pending = [Buffer.from(all.subarray(at))];
    this.#pendingBytes = all.length - at;
  }

  async finish(): Promise<void> {
    await this.#seal(Buffer.concat(this.#pending), true);
  }

  async #seal(plain: Uint8Array, isLast: boolean): Promise<void> {
    const cipher = createCipheriv("aes-256-gcm", this.#keys.seal, nonceOf(this.#keys, this.#number, isLast));
    this.#number += 1;
    await this.#write(Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]));
  }
}

/** The plain bytes of a sealed file; throws `passphrase` for another one, `damaged` for changed, missing, moved or added bytes. */
export async function* unseal(chunks: AsyncIterable<Uint8Array>, passphrase: string): AsyncGenerator<Uint8Array> {
  const source = new ByteSource(chunks);
  const header = await source.read(headerBytes);
  const code = await source.read(codeBytes);
  const [cost = 0, size = 0, lanes = 0] = header.subarray(magic.length);
  if (!isSealed(header) || cost < 1 || cost > costMax || size !== blockSize || lanes !== parallel)
    throw new BackupError("damaged", "the backup is damaged: its header was changed; make or copy it again");
  const keys = await keysOf(header, passphrase);
  if (!timingSafeEqual(keys.head.subarray(headerBytes), code))
    throw new BackupError("passphrase", "the passphrase is not the one that this backup was encrypted with");
  for (let number = 0, isLast = false; !isLast; number += 1) {
    const piece = await source.readUpTo(pieceBytes + tagBytes);
    isLast = await source.isAtEnd();
    yield openPiece(keys, piece, number, isLast);
  }
}

function openPiece(keys: Keys, piece: Buffer, number: number, isLast: boolean): Buffer {
  if (piece.length < tagBytes) throw damagedAt(number);
  const decipher = createDecipheriv("aes-256-gcm", keys.seal, nonceOf(keys, number, isLast));
  decipher.setAuthTag(piece.subarray(-tagBytes));
  try {
    return Buffer.concat([decipher.update(piece.subarray(0, -tagBytes)), decipher.final()]);
  } catch {
    throw damagedAt(number);
  }
}

function damagedAt(number: number): BackupError {
  const where = `near byte ${number * pieceBytes}`;
  return new BackupError("damaged", `the backup is damaged: it was changed or cut off ${where}; make or copy it again`);
}

function nonceOf({ noncePrefix }: Keys, number: number, isLast: boolean): Buffer {
  const rest = Buffer.alloc(5);
  rest.writeUInt32BE(number, 0);
  rest.writeUInt8(isLast ? 1 : 0, 4);
  return Buffer.concat([noncePrefix, rest]);
}

async function keysOf(header: Buffer, passphrase: string): Promise<Keys> {
  const at = magic.length + 4;
  const salt = header.subarray(at, at + saltBytes);
  const N = 2 ** (header[magic.length] ?? 0);
  // OpenSSL refuses to take more than its limit; the algorithm itself takes 128 * N * r.
  const derived = await derive(passphrase, salt, 2 * keyBytes, {
    N,
    r: blockSize,
    p: parallel,
    maxmem: 256 * N * blockSize,
  });
  const code = createHmac("sha256", derived.subarray(keyBytes)).update(header).digest();
  return {
    seal: derived.subarray(0, keyBytes),
    noncePrefix: header.subarray(at + saltBytes, at + saltBytes + noncePrefixBytes),
    head: Buffer.concat([header, code]),
  };
}
