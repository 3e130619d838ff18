import { registerConformance } from "../conformance/register.ts";
import { openCluster } from "./cluster.ts";

registerConformance({ name: "conformance of kube-apiserver", open: () => openCluster(), ownKinds: "install" });
