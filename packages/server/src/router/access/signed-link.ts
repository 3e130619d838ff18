import type { IncomingHttpHeaders } from "node:http";
import type { Target } from "../addressing/target.ts";

/** The query parameter that carries a link's token; it is traded for a cookie on first use, so that it stays out of logs and referrers. */
export const linkParameter = "agent_sandbox_token";

/** The cookie that a browser keeps for one sandbox. */
export const linkCookie = "agent_sandbox_session";

/** A link's token in a raw path, and the path without it. */
export function takeLinkToken(rawPath: string): { readonly token: string; readonly path: string } | undefined {
  const query = rawPath.indexOf("?");
  if (query === -1 || !rawPath.includes(linkParameter, query)) return undefined;
  const parts = rawPath.slice(query + 1).split("&");
  const own = parts.find((part) => part.startsWith(`${linkParameter}=`));
  if (own === undefined) return undefined;
  const rest = parts.filter((part) => part !== own).join("&");
  const path = rawPath.slice(0, query) + (rest === "" ? "" : `?${rest}`);
  return { token: own.slice(linkParameter.length + 1), path };
}

/** The token a browser's cookie carries. */
export function cookieToken(headers: IncomingHttpHeaders): string | undefined {
  const cookie = headers.cookie;
  if (cookie === undefined || !cookie.includes(linkCookie)) return undefined;
  const pair = cookie.split(";").find((part) => part.trimStart().startsWith(`${linkCookie}=`));
  return pair?.trim().slice(linkCookie.length + 1);
}

/** The cookie for a link's token: bound to the path of that sandbox, out of reach of its scripts. */
export function setLinkCookie(
  token: string,
  target: Target,
  options: { readonly secure: boolean; readonly maxAgeSeconds: number },
): string {
  const path = target.form === "path" ? target.pathPrefix : "/";
  const secure = options.secure ? "; Secure" : "";
  return `${linkCookie}=${token}; Path=${path}; Max-Age=${options.maxAgeSeconds}; HttpOnly; SameSite=Lax${secure}`;
}

/**
 * A page of another site may not act with a visitor's cookie. Browsers send `Origin` with every request that can change
 * something; where it is there it must be the host that was asked.
 */
export function isForeignOrigin(headers: IncomingHttpHeaders): boolean {
  const { origin } = headers;
  if (origin === undefined || origin === "null") return origin === "null";
  const asked = headers.host ?? String(headers[":authority"] ?? "");
  return origin.replace(/^https?:\/\//, "") !== asked;
}
