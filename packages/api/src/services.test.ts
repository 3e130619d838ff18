import { expect, test } from "vitest";
import { formatServices, type SandboxService, servicesOf } from "./services.ts";

const web: SandboxService = { name: "web", command: ["python3", "-m", "http.server"], env: { A: "b" }, cwd: "/work" };
const of = (text: string) => servicesOf({ annotations: { "agent-sandbox.dev/services": text } });

test("services: what is written is read back", () => {
  expect(of(formatServices([web]) ?? "")).toEqual([web]);
  expect(formatServices([])).toBeNull();
  expect(servicesOf({})).toEqual([]);
});

test.each([
  ["no JSON", "{"],
  ["no list", '{"name":"web"}'],
  ["no command", '[{"name":"web"}]'],
  ["an empty command", '[{"name":"web","command":[]}]'],
  ["a command of numbers", '[{"name":"web","command":[1]}]'],
  ["a name that is none", '[{"name":"Web","command":["a"]}]'],
  ["nothing", "[null]"],
  ["too much", `[{"name":"web","command":["${"x".repeat(9000)}"]}]`],
])("services: an annotation with %s declares none", (_title, text) => {
  expect(of(text)).toEqual([]);
});

test.each([
  ["ASCII", "x".repeat(8161)],
  ["two bytes each", `${"é".repeat(4080)}x`],
  ["signs of HTML", "<".repeat(8161)],
  ["line separators", `${"\u2028".repeat(2720)}x`],
])("services: the bound is 8192 bytes of UTF-8: %s", (_title, longest) => {
  const ofArgument = (argument: string): SandboxService[] => [{ name: "web", command: [argument] }];
  const text = formatServices(ofArgument(longest));
  expect(Buffer.byteLength(text ?? "")).toBe(8192);
  expect(of(text ?? "")).toEqual(ofArgument(longest));
  expect(formatServices(ofArgument(`${longest}x`))).toBeUndefined();
  expect(of(JSON.stringify(ofArgument(`${longest}x`)))).toEqual([]);
});

test("services: of what another wrote only the known parts are taken", () => {
  const odd = { ...web, env: { A: "b", N: 1 }, cwd: 7, user: "app", more: true };
  expect(of(JSON.stringify([odd]))).toEqual([{ name: "web", command: web.command, env: { A: "b" }, user: "app" }]);
});

test("services: more than a sandbox can have are refused to the writer and not started", () => {
  const many = Array.from({ length: 17 }, (_, index) => ({ name: `s${index}`, command: ["a"] }));
  expect(formatServices(many)).toBeUndefined();
  expect(of(JSON.stringify(many))).toHaveLength(16);
  expect(formatServices([{ name: "web", command: ["x".repeat(9000)] }])).toBeUndefined();
});
