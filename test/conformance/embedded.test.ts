import { openEmbeddedTarget } from "./embedded-target.ts";
import { registerConformance } from "./register.ts";

registerConformance({ name: "conformance of the embedded server", open: openEmbeddedTarget, ownKinds: "present" });
