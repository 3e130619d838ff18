/** One command and how its output is compared. */
export interface Command {
  readonly title: string;
  /** Arguments of kubectl, or a line for a shell in which `k` is kubectl; `@dir` is where the manifests are. */
  readonly run: string;
  /** `code` compares the exit code alone, for output that says how a server is made. */
  readonly compare?: "all" | "code" | "sorted";
}

/** The manifests the commands speak of. */
export const manifests: Readonly<Record<string, string>> = {
  "map.yaml":
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  labels: {app: demo}\ndata:\n  color: red\n",
  "map2.yaml":
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  labels: {app: demo}\ndata:\n  color: blue\n",
  "box.yaml": [
    "apiVersion: agents.x-k8s.io/v1beta1",
    "kind: Sandbox",
    "metadata:",
    "  name: box",
    "spec:",
    "  operatingMode: Suspended",
    "  podTemplate:",
    "    spec:",
    "      containers:",
    "      - {name: main, image: 'example.com/app:1'}",
    "",
  ].join("\n"),
  "pool.yaml": [
    "apiVersion: extensions.agents.x-k8s.io/v1beta1",
    "kind: SandboxWarmPool",
    "metadata: {name: pool}",
    "spec: {replicas: 1, sandboxTemplateRef: {name: tpl}}",
    "",
  ].join("\n"),
  "family.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: parent}\n",
  "bad.yaml": "apiVersion: agents.x-k8s.io/v1beta1\nkind: Sandbox\nmetadata: {name: bad}\nspec: {podTemplatee: {}}\n",
  "edit.sh": "#!/bin/sh\nsed -i 's/color: .*/color: green/' \"$1\"\n",
};

const command = (title: string, run: string, compare: Command["compare"] = "all"): Command => ({ title, run, compare });

/** Everything issue-worthy that people type, in an order in which each finds what it needs. */
export const commands: readonly Command[] = [
  command("apply creates", "k apply -f @dir/map.yaml"),
  command("apply again is unchanged", "k apply -f @dir/map.yaml"),
  command("apply configures", "k apply -f @dir/map2.yaml"),
  command("apply --server-side creates", "k apply --server-side -f @dir/box.yaml"),
  command("apply --server-side again", "k apply --server-side -f @dir/box.yaml"),
  command("apply --server-side conflicts", "k apply --server-side -f @dir/map.yaml"),
  command("apply --server-side --force-conflicts", "k apply --server-side --force-conflicts -f @dir/map.yaml"),
  command("apply --dry-run=server", "k apply --dry-run=server -f @dir/pool.yaml"),
  command("apply of a wrong field is refused", "k apply -f @dir/bad.yaml"),
  command("diff", "k diff -f @dir/map2.yaml | tail -n +3 | grep '^[+-] '"),
  command("create twice is refused", "k create -f @dir/map.yaml"),
  command("get", "k get configmap settings"),
  command("get of a Sandbox", "k get sandbox box"),
  command("get -o wide", "k get sandbox box -o wide"),
  command("get -o yaml", "k get configmap settings -o yaml"),
  command("get -o jsonpath", "k get configmap settings -o jsonpath='{.data.color}{\"\\n\"}'"),
  command("get -o name", "k get configmap,sandbox -o name"),
  command("get -o custom-columns", "k get sandbox -o custom-columns=N:.metadata.name,M:.spec.operatingMode"),
  command("get --show-labels", "k get configmap settings --show-labels"),
  command("get -l", "k get configmap -l app=demo"),
  command("get --field-selector", "k get configmap --field-selector metadata.name=settings"),
  command("get of nothing", "k get configmap nothing"),
  command("get of an unknown kind", "k get nonsense"),
  command("get of an empty list", "k get leases"),
  command("get by short name", "k get cm settings"),
  command("get -w", "timeout 4 k get configmap settings -w --request-timeout=2s; true"),
  command("describe of a ConfigMap", "k describe configmap settings"),
  command("describe of a Sandbox", "k describe sandbox box"),
  command("explain", "k explain sandbox.spec.operatingMode"),
  command("explain of a kind", "k explain sandbox.spec | head -40"),
  command("explain of a built-in", "k explain configmap.data", "code"),
  command(
    "edit",
    "EDITOR='sh @dir/edit.sh' k edit configmap settings && k get configmap settings -o jsonpath='{.data.color}'",
  ),
  command("patch --type=merge", 'k patch sandbox box --type=merge -p \'{"spec":{"operatingMode":"Running"}}\''),
  command(
    "patch --type=json",
    'k patch configmap settings --type=json -p \'[{"op":"add","path":"/data/size","value":"9"}]\'',
  ),
  command("patch --type=strategic", 'k patch configmap settings --type=strategic -p \'{"data":{"size":null}}\''),
  command("patch of a custom kind by strategic is refused", "k patch sandbox box --type=strategic -p '{}'"),
  command(
    "patch --subresource=status",
    'k patch sandbox box --subresource=status --type=merge -p \'{"status":{"serviceFQDN":"x"}}\'',
  ),
  command("pool is made", "k apply -f @dir/pool.yaml"),
  command(
    "scale",
    "k scale sandboxwarmpool pool --replicas=3 && k get sandboxwarmpool pool -o jsonpath='{.spec.replicas}'",
  ),
  command("scale of what cannot", "k scale configmap settings --replicas=3"),
  command("label", "k label configmap settings team=blue"),
  command("label again is refused", "k label configmap settings team=red"),
  command("label --overwrite", "k label configmap settings team=red --overwrite"),
  command("label removes", "k label configmap settings team-"),
  command("annotate", "k annotate sandbox box note=hello"),
  command("wait --for=condition times out", "k wait --for=condition=Ready sandbox/box --timeout=1s"),
  command("wait --for=jsonpath", "k wait --for=jsonpath='{.spec.operatingMode}'=Running sandbox/box --timeout=5s"),
  command("wait --for=delete of nothing", "k wait --for=delete configmap/nothing --timeout=1s"),
  command("auth can-i: yes", "k auth can-i create sandboxes"),
  command("auth can-i: no", "k auth can-i create sandboxes --as=stranger"),
  command("auth can-i --list", "k auth can-i --list --as=stranger | head -1", "code"),
  command("auth whoami", "k auth whoami --as=jane"),
  command("create token", "k create token default --duration=600s | wc -c | awk '{print ($1 > 100)}'"),
  command("create token of nobody", "k create token nobody"),
  command("create configmap", "k create configmap made --from-literal=a=b"),
  command("create secret", "k create secret generic secret --from-literal=a=b"),
  command("create serviceaccount", "k create serviceaccount robot"),
  command("create role", "k create role reader --verb=get,list --resource=configmaps"),
  command("create rolebinding", "k create rolebinding reads --role=reader --serviceaccount=default:robot"),
  command("create quota", "k create quota small --hard=pods=3"),
  command("describe of a role", "k describe role reader"),
  command("replace", "k replace -f @dir/map2.yaml"),
  command("api-resources of a group", "k api-resources --api-group=agents.x-k8s.io"),
  command("api-resources of extensions", "k api-resources --api-group=extensions.agents.x-k8s.io -o name", "sorted"),
  command("api-versions has ours", "k api-versions | grep agents.x-k8s.io", "sorted"),
  command(
    "run and delete a Pod",
    "k run once --image=example.com/app:1 --restart=Never && k delete pod once --wait=false",
  ),
  command("rollout of what has none", "k rollout status sandbox/box"),
  command("expose of a Sandbox is refused", "k expose sandbox box --port=80"),
  command("logs of nothing", "k logs nothing"),
  command("exec into nothing", "k exec nothing -- true"),
  command(
    "delete --cascade=background",
    "k create -f @dir/family.yaml && k delete configmap parent --cascade=background --wait",
  ),
  command(
    "delete --cascade=foreground",
    "k create -f @dir/family.yaml && k delete configmap parent --cascade=foreground --wait",
  ),
  command(
    "delete --cascade=orphan",
    "k create -f @dir/family.yaml && k delete configmap parent --cascade=orphan --wait",
  ),
  command("delete --dry-run=server", "k delete configmap settings --dry-run=server"),
  command("delete of nothing", "k delete configmap nothing"),
  command("delete --ignore-not-found", "k delete configmap nothing --ignore-not-found"),
  command("delete by label", "k delete configmap -l app=demo"),
  command("delete of a Sandbox", "k delete sandbox box"),
  command("delete -f", "k delete -f @dir/pool.yaml"),
];
