/** A value as JSON or YAML, with a newline at its end. */
export async function formatValue(value: unknown, format: "json" | "yaml"): Promise<string> {
  if (format === "json") return `${JSON.stringify(value, null, 2)}\n`;
  const { stringify } = await import("yaml");
  return stringify(value, { lineWidth: 0 });
}
