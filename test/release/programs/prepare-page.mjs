// Makes the sandbox `page` and a token for it; prints the router's address and the token, and writes the router's CA to ca.pem.
import { readFileSync, writeFileSync } from "node:fs";
import https from "node:https";
import { json } from "node:stream/consumers";
import { Sandbox } from "@agent-sandbox/sdk";

await Sandbox.create({ name: "page" });
const [recordFile] = process.argv.slice(2);
const record = JSON.parse(readFileSync(recordFile, "utf8"));
const config = JSON.parse(readFileSync(record.kubeconfig, "utf8"));
const pem = (text) => Buffer.from(text, "base64").toString("utf8");
const { "client-certificate-data": cert, "client-key-data": key } = config.users[0].user;
const ca = pem(config.clusters[0].cluster["certificate-authority-data"]);

function post(path, body) {
  const options = {
    method: "POST",
    ca,
    cert: pem(cert),
    key: pem(key),
    headers: { "content-type": "application/json" },
  };
  return new Promise((resolve, reject) => {
    const request = https.request(`${record.apiUrl}${path}`, options, (response) => resolve(json(response)));
    request.on("error", reject);
    request.end(JSON.stringify(body));
  });
}

const rbac = "rbac.authorization.k8s.io";
await post(`/apis/${rbac}/v1/namespaces/default/rolebindings`, {
  apiVersion: `${rbac}/v1`,
  kind: "RoleBinding",
  metadata: { name: "page" },
  subjects: [{ kind: "ServiceAccount", name: "default", namespace: "default" }],
  roleRef: { apiGroup: rbac, kind: "ClusterRole", name: "sandbox-user" },
});
const { status } = await post("/api/v1/namespaces/default/serviceaccounts/default/token", {
  apiVersion: "authentication.k8s.io/v1",
  kind: "TokenRequest",
  spec: {},
});
writeFileSync("ca.pem", ca);
console.log(JSON.stringify({ routerUrl: record.routerUrl.replace("http:", "https:"), token: status.token }));
