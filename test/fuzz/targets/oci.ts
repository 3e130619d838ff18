import { Readable } from "node:stream";
import { formatImageReference, parseImageReference } from "@agent-sandbox/api";
import { extract } from "tar-stream";
import { ImageError } from "../../../packages/server/src/node/images/image-error.ts";
import { parseConfig, parseManifest } from "../../../packages/server/src/node/images/manifest.ts";
import { parseChallenge, parseDockerConfig } from "../../../packages/server/src/node/images/registry-auth.ts";
import { type FuzzTarget, promise, refusing } from "../fuzz-target.ts";

const digest = `sha256:${"0".repeat(64)}`;
const isImageError = (error: Error): boolean => error instanceof ImageError;

/** Manifests, indexes and configurations: a registry may send anything. */
export const ociDocuments: FuzzTarget = {
  name: "oci-documents",
  seeds: [
    JSON.stringify({
      schemaVersion: 2,
      config: { digest, size: 2 },
      layers: [{ digest, size: 3, mediaType: "application/vnd.oci.image.layer.v1.tar+gzip" }],
    }),
    JSON.stringify({
      schemaVersion: 2,
      manifests: [{ digest, size: 1, platform: { architecture: "amd64", os: "linux" } }],
    }),
    JSON.stringify({
      architecture: "amd64",
      config: { Env: ["A=b"], Cmd: ["sh"], User: "0:0", WorkingDir: "/" },
      rootfs: { diff_ids: [digest] },
    }),
  ],
  dictionary: ["null", "[]", "{}", '"layers":', '"manifests":', '"__proto__":', '"config":', "1e999", "-1", digest],
  run(input) {
    refusing(() => parseManifest(input), isImageError);
    refusing(() => parseConfig(input), isImageError);
  },
};

/** Names of images, in a Pod or in an archive: what was read and written once more is the same. */
export const imageNames: FuzzTarget = {
  name: "image-names",
  seeds: ["alpine", "docker.io/library/alpine:3", `registry.test:5000/a/b@${digest}`, "host", "[::1]:5000/a:b"],
  dictionary: ["/", ":", "@", "sha256:", "..", "localhost", "docker.io/", "_", "__", "-", digest],
  run(input) {
    const text = input.toString("latin1");
    const reference = refusing(
      () => parseImageReference(text),
      (error) => error instanceof SyntaxError,
    );
    if (reference !== undefined) {
      const written = formatImageReference(reference);
      promise(formatImageReference(parseImageReference(written)) === written, `${text} is not stable`);
      promise(!/[^\x21-\x7e]/.test(written), `${JSON.stringify(written)} is no name`);
      promise(!/(^|\/)\.\.?(\/|$)/.test(written), `${text} leads elsewhere`);
    }
  },
};

/** What a registry says of how to log in, and what a pull secret holds. */
export const registryAuth: FuzzTarget = {
  name: "registry-auth",
  seeds: [
    'Bearer realm="https://auth.test/token",service="registry.test",scope="repository:a:pull"',
    "Basic realm=x",
    JSON.stringify({ auths: { "https://index.docker.io/v1/": { auth: "YTpi" }, b: { username: "u", password: "p" } } }),
  ],
  dictionary: ["Bearer ", "Basic ", 'realm="', '"auths":', '"auth":', "__proto__", "=", ",", '"'],
  run(input) {
    const text = input.toString("latin1");
    const parameters = parseChallenge(text)?.parameters ?? {};
    promise(
      Object.values(parameters).every((value) => typeof value === "string"),
      "a parameter is no text",
    );
    parseDockerConfig(text);
  },
};

/** The reader under archives of images, which users load from wherever they have them. */
export const tarArchive: FuzzTarget = {
  name: "tar-archive",
  seeds: [tarFile("index.json", "{}"), Buffer.concat([tarFile("a", "x"), tarFile("b", "")]), Buffer.alloc(1024)],
  dictionary: [
    "ustar\x0000",
    "ustar  \0",
    "././@LongLink",
    "0000644\0",
    "\x80\x00\x00\x00\x00\x00\x00\x00",
    "L",
    "x",
    "27 path=../../../etc/passwd\n",
  ],
  async run(input) {
    const tar = extract();
    Readable.from([input]).pipe(tar);
    try {
      let bytes = 0;
      for await (const entry of tar)
        for await (const chunk of entry as AsyncIterable<Uint8Array>) bytes += chunk.length;
      promise(bytes <= input.length, "an archive held more than its own length");
    } catch (error) {
      promise(error instanceof Error && error.name !== "BrokenPromise", String(error));
    }
  },
};

/** One regular file as ustar writes it. */
function tarFile(name: string, content: string): Buffer {
  const header = Buffer.alloc(512);
  header.write(name, 0);
  header.write("0000644\0", 100);
  header.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("        0", 148);
  header.write("ustar\x0000", 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const body = Buffer.alloc(Math.ceil(content.length / 512) * 512);
  body.write(content);
  return Buffer.concat([header, body]);
}
