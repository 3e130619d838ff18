export * from "./exit-codes.ts";
