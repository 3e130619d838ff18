import type { RunContainerRequest } from "../../packages/server/src/node/host/container.ts";
import { containerOf } from "./contract-case.ts";
import type { RealHost } from "./real-host.ts";
import { askGuest, type GuestReport, guestProcess } from "./saved-guest.ts";

/** The address of the one guest of a test. */
export const address = "10.203.0.2";

/** Its slot. */
export const slot = 2;

/** What tests of saved sandboxes do with a host: one guest at a time, on a root file system whose writable layer is kept. */
export class SavedBench {
  readonly real: RealHost;

  constructor(real: RealHost) {
    this.real = real;
  }

  async prepareNetwork(): Promise<void> {
    await this.real.host.ensureNetwork({ cidr: "10.203.0.0/16", gateway: "10.203.0.1" });
    await this.prepareSlot();
  }

  async prepareSlot(): Promise<void> {
    const { host } = this.real;
    await host.ensureSlot({ slot });
    await host.assignSlot({ slot, address });
    const endpoint = { slot, address, ingress: [{}], egress: [{}] };
    await host.applyRules({ endpoints: [endpoint], gatewayPorts: [], sleeping: [] });
  }

  async prepareRoot(id: string, keepKey: string): Promise<void> {
    await this.real.host.prepareRootfs({ id, hostUsr: true, writableBytes: 2 ** 27, keepKey });
  }

  /** Makes everything that a guest needs, starts it and waits until it answers. */
  async start(id: string, memoryMiB = 0, more: Partial<RunContainerRequest> = {}): Promise<GuestReport> {
    await this.prepareNetwork();
    await this.prepareRoot(id, "kept");
    await this.real.host.runContainer(guestOf(id, { process: guestProcess(memoryMiB), ...more }));
    return this.answer();
  }

  /** Waits until the guest answers. */
  async answer(word?: string): Promise<GuestReport> {
    for (let tries = 0; tries < 20; tries += 1) {
      const report = askGuest(this.real, address, word);
      if (report !== undefined) return report;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    throw new Error("the guest does not answer");
  }

  /** What a Pod's end takes away: the container, its root file system's mount and its slot. */
  async removePod(id: string): Promise<void> {
    await this.real.host.deleteContainer({ id });
    await this.real.host.releaseRootfs({ id });
    await this.real.host.releaseSlot({ slot });
  }
}

/** A root container with the guest in it. */
export function guestOf(id: string, more: Partial<RunContainerRequest> = {}): RunContainerRequest {
  return containerOf(id, "runsc", [], { process: guestProcess(), slot, hostname: "box", ...more });
}
