export * from "./client.ts";
export * from "./clock.ts";
export * from "./transport.ts";
