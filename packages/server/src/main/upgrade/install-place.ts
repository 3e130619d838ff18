import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import path from "node:path";
import { type ReleaseRecord, releaseLayout } from "../../installation/installation.ts";
import { assertRootPath } from "../root-files.ts";
import { ensureReadableDirectory } from "./readable-directory.ts";
import { UpgradeError } from "./upgrade-error.ts";

/** Begins the name of a release that is being unpacked. */
const partial = ".new-";

/** Where releases are installed: `<prefix>/versions/<version>`, and a link `<prefix>/current` to one of them. */
export class InstallPlace {
  readonly prefix: string;
  readonly link: string;

  constructor(prefix: string) {
    // A running engine knows its installation by the path without links.
    this.prefix = existsSync(prefix) ? realpathSync(prefix) : prefix;
    this.link = path.join(this.prefix, "current");
  }

  /** The directory of a version, whether it is there or not. */
  dirOf(version: string): string {
    return path.join(this.prefix, "versions", version);
  }

  /** What the link leads to; undefined where there is none. */
  current(): string | undefined {
    if (lstatSync(this.link, { throwIfNoEntry: false })?.isSymbolicLink() !== true) return undefined;
    return path.resolve(this.prefix, readlinkSync(this.link));
  }

  /**
   * What the link is to lead to again if a version does not start: the installation that runs, if it is one of this place. The link itself may
   * lead to that version already, by an upgrade that was killed before it asked the engine.
   */
  wayBack(version: string, running: string | undefined): string | undefined {
    if (running !== undefined && path.dirname(running) === path.join(this.prefix, "versions")) return running;
    const current = this.current();
    return current === this.dirOf(version) ? undefined : current;
  }

  /** The text of the record of an installed version; undefined where it is not installed. */
  recordText(version: string): string | undefined {
    const file = path.join(this.dirOf(version), releaseLayout.record);
    return existsSync(file) ? readFileSync(file, "utf8") : undefined;
  }

  /** Makes the directories. Preconditions: the caller is root. */
  ensure(): void {
    assertRootPath(this.prefix);
    ensureReadableDirectory(path.join(this.prefix, "versions"));
    assertRootPath(path.join(this.prefix, "versions"));
  }

  /** An empty directory beside the versions; those that upgrades left which were killed are removed. */
  makePartial(): string {
    const versions = path.join(this.prefix, "versions");
    for (const name of readdirSync(versions))
      if (name.startsWith(partial)) rmSync(path.join(versions, name), { recursive: true, force: true });
    const dir = path.join(versions, `${partial}${process.pid}`);
    ensureReadableDirectory(dir);
    return dir;
  }

  /** Gives an unpacked release its name. Preconditions: all its files are on the disk. */
  adopt(dir: string, { version }: ReleaseRecord): void {
    renameSync(dir, this.dirOf(version));
  }

  /** Removes the versions that are not among those. */
  keepOnly(dirs: readonly string[]): void {
    const versions = path.join(this.prefix, "versions");
    for (const name of readdirSync(versions)) {
      const dir = path.join(versions, name);
      if (!dirs.includes(dir)) rmSync(dir, { recursive: true, force: true });
    }
  }
}

/** Makes a link lead elsewhere in one step; without a target it goes. */
export function pointLink(link: string, target: string | undefined): void {
  if (target === undefined) {
    rmSync(link, { force: true });
    return;
  }
  const fresh = `${link}.new`;
  rmSync(fresh, { force: true });
  symlinkSync(path.relative(path.dirname(link), target), fresh);
  renameSync(fresh, link);
}

/** The place that the next version of an installation goes to; throws where it did not come from a tarball and none is named. */
export function installPlaceOf(installation: string, prefix: string | undefined): InstallPlace {
  if (prefix !== undefined) return new InstallPlace(path.resolve(prefix));
  if (installation.startsWith("/usr/") && !installation.startsWith("/usr/local/"))
    throw refused(
      installation,
      "by the package manager",
      "install the package of the other version with it, for example: apt install ./agent-sandbox_<version>_<arch>.deb",
    );
  if (installation.split("/").includes("node_modules"))
    throw refused(installation, "by npm", "install the other version with it");
  if (!existsSync(path.join(installation, releaseLayout.record)))
    throw refused(installation, "as a checkout", "update it there with git and start the engine again");
  const parent = path.dirname(installation);
  if (path.basename(parent) === "versions") return new InstallPlace(path.dirname(parent));
  const beside = path.join(parent, "agent-sandbox");
  // Releases inside a release would go with it.
  if (beside === installation)
    throw refused(
      installation,
      "without a directory for releases",
      `move it to ${path.join(installation, "versions/<version>")}, with a link ${path.join(installation, "current")} to it`,
    );
  return new InstallPlace(beside);
}

function refused(installation: string, how: string, advice: string): UpgradeError {
  return new UpgradeError(
    "not-from-a-tarball",
    `${installation} was installed ${how}: ${advice}; or name a directory for releases with --prefix`,
  );
}
