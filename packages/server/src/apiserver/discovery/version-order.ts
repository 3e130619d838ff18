const versionPattern = /^v(\d+)(?:(alpha|beta)(\d+))?$/;
const stages = ["", "beta", "alpha"];

/** Kubernetes' order of versions, best first: v2, v1, v1beta1, v1alpha1, then anything else by name. */
export function compareVersions(a: string, b: string): number {
  const left = versionPattern.exec(a);
  const right = versionPattern.exec(b);
  if (left === null || right === null) return left === right ? (a < b ? -1 : 1) : left === null ? 1 : -1;
  const stage = stages.indexOf(left[2] ?? "") - stages.indexOf(right[2] ?? "");
  if (stage !== 0) return stage;
  return Number(right[1]) - Number(left[1]) || Number(right[3] ?? 0) - Number(left[3] ?? 0);
}
