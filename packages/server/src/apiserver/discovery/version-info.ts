/**
 * The answer to /version. Clients compare the minor version to decide which features to use, so it names the release
 * of Kubernetes whose API we serve; the build says that it is ours.
 */
export const versionInfo = {
  major: "1",
  minor: "36",
  emulationMajor: "1",
  emulationMinor: "36",
  minCompatibilityMajor: "1",
  minCompatibilityMinor: "35",
  gitVersion: "v1.36.3+agent-sandbox",
  gitCommit: "",
  gitTreeState: "clean",
  buildDate: "1970-01-01T00:00:00Z",
  goVersion: "none",
  compiler: "none",
  platform: `${process.platform}/${process.arch === "x64" ? "amd64" : process.arch}`,
};
