import type { IncomingHttpHeaders } from "node:http";
import type { Target } from "../addressing/target.ts";

/** The query parameter that carries a link's token; a browser trades it for a cookie on first use, so that it stays out of its history and of referrers. */
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
 * A page of another origin may not act with a visitor's cookie. Browsers send `Origin` with every request that can change
 * something; where it is there it must be the host that was asked. What a page only embeds has none, but most browsers
 * tell where it comes from.
 */
export function isForeignOrigin(headers: IncomingHttpHeaders): boolean {
  const { origin, "sec-fetch-site": site, "sec-fetch-mode": mode } = headers;
  if (origin === "null") return true;
  if (origin !== undefined) return origin.replace(/^https?:\/\//, "") !== hostOf(headers);
  return (site === "cross-site" || site === "same-site") && mode !== "navigate";
}

/**
 * Whether a browser asks. It trades a link's token for a cookie, so that the token stays out of its history and of what its pages tell others, and later
 * requests need none. Programs without a cookie jar could not follow that: they are answered at once.
 */
export function isBrowser(headers: IncomingHttpHeaders): boolean {
  // Of the four headers that browsers send together, Node's fetch sends the mode alone.
  const hasMark = headers["sec-fetch-site"] !== undefined || headers.origin !== undefined;
  return hasMark || asksForPage(headers);
}

/** A navigation, or something else that asks for a page. */
function asksForPage({ accept, "sec-fetch-mode": mode }: IncomingHttpHeaders): boolean {
  return mode === "navigate" || accept?.includes("text/html") === true;
}

const loopbackHost = /^(?:(?:[a-z0-9.-]+\.)?localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?$/i;

/** Whether a request names this machine as its visitor knows it. */
export function isForLoopback(headers: IncomingHttpHeaders): boolean {
  return loopbackHost.test(hostOf(headers));
}

/**
 * Where a browser goes on with a link to a path: to a host of the sandbox's own. Pages below one host are one origin to
 * it, and act with each other's cookies whatever path those are bound to. Undefined where no such name is served, or
 * none that resolves for the visitor, and for callers that are no browser.
 */
export function originForBrowser(
  headers: IncomingHttpHeaders,
  { form, name, namespace, port }: Target,
  hostDomain: string | undefined,
): string | undefined {
  if (form !== "path" || hostDomain === undefined || !asksForPage(headers)) return undefined;
  // Below `localhost` is the visitor's own machine, which is not always this one.
  if (/(?:^|\.)localhost$/.test(hostDomain) && !isForLoopback(headers)) return undefined;
  const label = `${port}-${name}`;
  if (label.length > 63) return undefined;
  return `//${label}.${namespace}.${hostDomain}${/:\d+$/.exec(hostOf(headers))?.[0] ?? ""}`;
}

function hostOf(headers: IncomingHttpHeaders): string {
  return headers.host ?? String(headers[":authority"] ?? "");
}
