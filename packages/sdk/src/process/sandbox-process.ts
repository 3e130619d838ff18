import { isSandboxError } from "../errors/sandbox-error.ts";
import type { ConnectClient } from "../plane/connect-client.ts";
import type { ProcessEvent } from "./event-stream.ts";
import { InputWriter } from "./input-writer.ts";
import { OutputStream } from "./output-stream.ts";
import { repeatUntilAnswered } from "./repeat-until-answered.ts";
import type { TerminalSize } from "./run-options.ts";
import { type ExitStatus, exitStatusOf } from "./run-result.ts";
import { processService, type WireProcess } from "./wire.ts";

/** What a handle is made of. */
export interface ProcessParts {
  readonly client: ConnectClient;
  readonly process: WireProcess;
  /** The events behind `started`. */
  readonly events: AsyncGenerator<ProcessEvent>;
  /** Cancelled: the process is killed. */
  readonly signal?: AbortSignal | undefined;
  /** Ends the event stream when the handle is no longer wanted. */
  readonly detach: () => void;
  /** Sees every piece of output in the order of both streams together. */
  readonly onOutput?: ((bytes: Uint8Array) => void) | undefined;
}

/** Which processes a signal reaches. */
export type SignalScope = "tree" | "group" | "process";

/** A process in a sandbox, in the manner of `node:child_process`. It outlives the connection and this handle. */
export class SandboxProcess {
  /** 16 hexadecimal digits; `sandbox.attach(id)` finds the process again, from anywhere. */
  readonly id: string;
  /** Its process id inside the sandbox. */
  readonly pid: number;
  readonly stdin: InputWriter;
  readonly stdout = new OutputStream();
  readonly stderr = new OutputStream();
  /** Resolves when the process has ended and its output has been read; rejects when it can no longer be followed. */
  readonly exited: Promise<ExitStatus>;
  readonly #parts: ProcessParts;
  #droppedBytes = 0;
  #killing: Promise<void> | undefined;

  constructor(parts: ProcessParts) {
    this.#parts = parts;
    this.id = parts.process.id ?? "";
    this.pid = parts.process.pid ?? 0;
    this.stdin = new InputWriter(parts.client, this.id);
    this.exited = this.#pump();
    // Without a handler of its own, a rejection that no caller awaits would end the program.
    this.exited.catch(() => undefined);
    parts.signal?.addEventListener("abort", this.#onAbort, { once: true });
    if (parts.signal?.aborted === true) this.#onAbort();
  }

  /** Bytes of output lost because the connection was away for too long. */
  get droppedBytes(): number {
    return this.#droppedBytes;
  }

  /** Sends a signal (`SIGTERM`, `TERM` or `15`) to the whole process tree or a part of it; false where no process was left to get it. */
  async signal(
    signalName: string,
    options: { readonly scope?: SignalScope; readonly signal?: AbortSignal } = {},
  ): Promise<boolean> {
    const scope = `SIGNAL_SCOPE_${(options.scope ?? "tree").toUpperCase()}`;
    try {
      const request = { id: this.id, signal: signalName, scope };
      const { signalled = 0 } = await this.#parts.client.unary<{ signalled?: number }>(
        `${processService}/Signal`,
        request,
        { signal: options.signal },
      );
      return signalled > 0;
    } catch (error) {
      if (isSandboxError(error, "not-found")) return false;
      throw error;
    }
  }

  /** Ends the whole tree with SIGKILL; false where nothing was left of it. */
  kill(options: { readonly signal?: AbortSignal } = {}): Promise<boolean> {
    return this.signal("SIGKILL", options);
  }

  /** Tells a process with a terminal its window's size. */
  async resize(size: TerminalSize): Promise<void> {
    await this.#parts.client.unary(`${processService}/Resize`, { id: this.id, size });
  }

  /** Stops following; the process goes on, and `exited` rejects with code `closed`. */
  detach(): void {
    this.#parts.detach();
  }

  readonly #onAbort = (): void => {
    this.#killing = repeatUntilAnswered((signal) => this.kill({ signal }));
  };

  async #pump(): Promise<ExitStatus> {
    try {
      for await (const event of this.#parts.events) {
        if (event.kind === "stdout" || event.kind === "stderr") this.#parts.onOutput?.(event.bytes);
        if (event.kind === "stdout") await this.stdout.push(event.bytes);
        else if (event.kind === "stderr") await this.stderr.push(event.bytes);
        else if (event.kind === "dropped") this.#droppedBytes += event.bytes;
        else if (event.kind === "exit") return await this.#finish(exitStatusOf(event.exit));
      }
      throw new Error("bug: a process stream ended without an exit");
    } catch (error) {
      // A call that was given up rejects once the tree is gone.
      await this.#killing;
      this.stdout.finish({ error });
      this.stderr.finish({ error });
      throw error;
    } finally {
      this.#parts.signal?.removeEventListener("abort", this.#onAbort);
    }
  }

  async #finish(status: ExitStatus): Promise<ExitStatus> {
    await this.#killing;
    this.stdout.finish();
    this.stderr.finish();
    return status;
  }
}
