import { readFile } from "node:fs/promises";
import { writeRecord } from "../../durable/record-file.ts";
import type { RunContainerRequest } from "../host/container.ts";
import type { Host, HostInfo } from "../host/host.ts";
import { HostError } from "../host/host-error.ts";
import { pauseProcess } from "./pause-process.ts";
import { pauseWritableBytes } from "./state-dir.ts";

/** How long the test sandbox may take to read its memory: it has next to none. */
const waitMs = 30_000;

/** What keeps a machine from saving now and says nothing of whether it restores. */
const ofTheMoment: readonly string[] = ["unavailable", "no-space", "busy"];

/** What a restore test works with. */
export interface RestoreTestOptions {
  readonly host: Host;
  readonly info: Pick<HostInfo, "kernel" | "runtimes">;
  /** Where it is written down that the test has passed. */
  readonly file: string;
  /** Unique on this machine and for ever. */
  readonly newId: () => string;
}

/**
 * Shows, before the first memory of a user is saved, that this machine restores what it saves: a sandbox of the node's own goes to disk and comes back. Done once for a build of
 * runsc on a kernel, which is written down; a test that failed is made again with the next save.
 */
export class RestoreTest {
  readonly #options: RestoreTestOptions;
  #passing: Promise<void> | undefined;

  constructor(options: RestoreTestOptions) {
    this.#options = options;
  }

  /** Throws, with the reason, where this machine does not. */
  passed(signal: AbortSignal): Promise<void> {
    this.#passing ??= this.#pass(signal).catch((error: unknown) => {
      this.#passing = undefined;
      throw error;
    });
    return this.#passing;
  }

  async #pass(signal: AbortSignal): Promise<void> {
    const { file } = this.#options;
    const subject = this.#subject();
    if ((await readFile(file, "utf8").catch(() => "")) === subject) return;
    try {
      await this.#saveAndRestore(signal);
    } catch (error) {
      if (!(error instanceof HostError) || ofTheMoment.includes(error.code)) throw error;
      throw new HostError(error.code, `this machine could not restore a test sandbox: ${error.message}`);
    }
    await writeRecord(file, subject);
  }

  #subject(): string {
    const { kernel, runtimes } = this.#options.info;
    const { version } = runtimes.find(({ runtime }) => runtime === "runsc") ?? {};
    return JSON.stringify({ runsc: version, kernel });
  }

  /** What a killed agent leaves of it is in no record, and swept away by the next. */
  async #saveAndRestore(signal: AbortSignal): Promise<void> {
    const { host, newId } = this.#options;
    const [rootfs, first, second] = [newId(), newId(), newId()];
    const request: Omit<RunContainerRequest, "id"> = {
      runtime: "runsc",
      rootfs,
      readOnlyRootfs: true,
      process: pauseProcess,
      mounts: [],
    };
    try {
      await host.prepareRootfs({ id: rootfs, hostUsr: true, writableBytes: pauseWritableBytes }, signal);
      await host.runContainer({ ...request, id: first }, signal);
      // Reusable ones are not taken for the sleep of a Sandbox that is gone.
      await host.saveSandbox({ id: first, saved: first, reusable: true }, signal);
      await host.deleteContainer({ id: first }, signal);
      await host.runContainer({ ...request, id: second, restoreFrom: { saved: first, container: first } }, signal);
      if ((await host.waitRestored({ id: second, waitMs }, signal)) === undefined)
        throw new HostError("restore-failed", `its memory was not read within ${waitMs / 1000} s`);
    } finally {
      for (const id of [first, second]) await host.deleteContainer({ id });
      await host.discardSaved({ id: first });
      await host.releaseRootfs({ id: rootfs });
    }
  }
}
