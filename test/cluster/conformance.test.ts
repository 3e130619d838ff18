import { registerConformance } from "../conformance/register.ts";
import { openCluster } from "./cluster.ts";

// A scheduler would change pods while a case looks at them.
registerConformance({
  name: "conformance of kube-apiserver",
  open: () => openCluster({ scheduler: false }),
  ownKinds: "install",
});
