import { ApiError, type JsonObject, jsonEqual } from "@agent-sandbox/api";
import { objectAt, stringAt } from "../json/json.ts";
import type { ApiRequest, ApiResponse } from "../request/api-request.ts";
import { isWholeBody } from "../request/api-request.ts";

const crdsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/** Who installs what the server itself brings. */
const installer = { username: "system:apiserver", groups: ["system:masters"] };

/** Installs CRDs through the API, so that they pass the checks of every CRD; an unchanged one is left alone. */
export async function installCrds(
  handle: (request: ApiRequest) => Promise<ApiResponse>,
  crds: readonly JsonObject[],
): Promise<void> {
  for (const crd of crds) {
    const name = stringAt(objectAt(crd, "metadata"), "name") ?? "";
    const path = `${crdsPath}/${encodeURIComponent(name)}`;
    const present = await call(handle, { method: "GET", path });
    if (present.status === 404) await expectDone(handle, { method: "POST", path: crdsPath, body: JSON.stringify(crd) });
    else if (!jsonEqual(objectAt(present.body, "spec"), objectAt(crd, "spec")))
      await replace(handle, { path, crd, present: present.body });
  }
}

async function replace(
  handle: (request: ApiRequest) => Promise<ApiResponse>,
  { path, crd, present }: { path: string; crd: JsonObject; present: JsonObject },
): Promise<void> {
  const resourceVersion = stringAt(objectAt(present, "metadata"), "resourceVersion") ?? "";
  const metadata = { ...objectAt(present, "metadata"), ...objectAt(crd, "metadata"), resourceVersion };
  await expectDone(handle, { method: "PUT", path, body: JSON.stringify({ ...crd, metadata }) });
}

type Call = Pick<ApiRequest, "method" | "path" | "body">;

async function call(
  handle: (request: ApiRequest) => Promise<ApiResponse>,
  request: Call,
): Promise<{ status: number; body: JsonObject }> {
  const response = await handle({ ...request, user: installer, headers: { "user-agent": "agent-sandbox" } });
  const bytes = isWholeBody(response.body) ? Buffer.concat(response.body) : Buffer.alloc(0);
  return { status: response.status, body: JSON.parse(bytes.toString()) as JsonObject };
}

async function expectDone(handle: (request: ApiRequest) => Promise<ApiResponse>, request: Call): Promise<void> {
  const { status, body } = await call(handle, request);
  if (status >= 300) throw ApiError.fromStatus(body as never, status);
}
