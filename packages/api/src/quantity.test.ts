import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseQuantity, Quantity, tryParseQuantity } from "./quantity.ts";

describe("quantity", () => {
  test.each([
    ["0", "0"],
    ["-0", "0"],
    ["1", "1"],
    ["+1", "1"],
    ["1.5", "1500m"],
    [".5", "500m"],
    ["5.", "5"],
    ["1000", "1k"],
    ["1024", "1024"],
    ["1024Ki", "1Mi"],
    ["1024Mi", "1Gi"],
    ["1.5Gi", "1536Mi"],
    ["0.5Gi", "512Mi"],
    ["0.5Ki", "512"],
    ["1Ki", "1Ki"],
    ["1023Ki", "1023Ki"],
    ["1.1Ki", "1126400m"],
    ["0.1m", "100u"],
    ["0.1n", "1n"],
    ["-0.1n", "-1n"],
    ["0.001Ki", "1024m"],
    ["0.0001Ki", "102400u"],
    ["100m", "100m"],
    ["1000m", "1"],
    ["1500000u", "1500m"],
    ["1e3", "1e3"],
    ["1E3", "1e3"],
    ["1e-3", "1e-3"],
    ["1.5e3", "1500"],
    ["1e4", "10e3"],
    ["12e0", "12"],
    ["1E", "1E"],
    ["1Ei", "1Ei"],
    ["9223372036854775807", "9223372036854775807"],
    ["9223372036854775808", "9223372036854775808"],
    ["100Ei", "9223372036854775807"],
    ["-100E", "-100E"],
    ["99433084811E", "99433084811E"],
    ["1e21", "1e21"],
    ["1e-1000000", "1e-9"],
    ["00050m", "50m"],
  ])("parseQuantity: %s prints as %s", (text, canonical) => {
    expect(parseQuantity(text).toString()).toBe(canonical);
  });

  test.each([
    "",
    "-",
    ".",
    "abc",
    "1 ",
    " 1",
    "1GB",
    "1gi",
    "1KI",
    "1e",
    "1e1.5",
    "0x1",
    "1..2",
    "--1",
    "1Kii",
    "NaN",
    "1mm",
    "1e1000",
  ])("parseQuantity: refuses %j", (text) => {
    expect(tryParseQuantity(text)).toBeUndefined();
    expect(() => parseQuantity(text)).toThrow("is not a quantity");
  });

  test("parseQuantity: takes JSON numbers", () => {
    expect(parseQuantity(2).toString()).toBe("2");
    expect(parseQuantity(0.5).toString()).toBe("500m");
  });

  test("Quantity: compares by value across formats", () => {
    expect(parseQuantity("1Gi").compare(parseQuantity("1024Mi"))).toBe(0);
    expect(parseQuantity("1G").compare(parseQuantity("1Gi"))).toBe(-1);
    expect(parseQuantity("1").compare(parseQuantity("999m"))).toBe(1);
  });

  test("Quantity: sums print in the first operand's format", () => {
    expect(parseQuantity("1Gi").add(parseQuantity("1024")).toString()).toBe("1048577Ki");
    expect(parseQuantity("0").add(parseQuantity("1Gi")).toString()).toBe("1Gi");
    expect(parseQuantity("1").sub(parseQuantity("1500m")).toString()).toBe("-500m");
  });

  test("Quantity: whole units and thousandths round away from zero", () => {
    expect(parseQuantity("1500m").units).toBe(2n);
    expect(parseQuantity("-1500m").units).toBe(-2n);
    expect(parseQuantity("1u").millis).toBe(1n);
    expect(JSON.stringify({ cpu: parseQuantity("0.25") })).toBe('{"cpu":"250m"}');
  });

  const quantities = fc
    .tuple(
      fc.bigInt(-(2n ** 60n), 2n ** 60n),
      fc.constantFrom("DecimalSI" as const, "BinarySI" as const, "DecimalExponent" as const),
    )
    .map(([nanos, format]) => new Quantity(nanos, format));

  test("Quantity: the canonical form parses back to the same value and prints the same", () => {
    fc.assert(
      fc.property(quantities, (quantity) => {
        const again = parseQuantity(quantity.toString());
        expect(again.nanos).toBe(quantity.nanos);
        expect(again.toString()).toBe(quantity.toString());
      }),
    );
  });

  test("Quantity: what was added can be taken away", () => {
    fc.assert(fc.property(quantities, quantities, (a, b) => a.add(b).sub(b).compare(a) === 0));
  });
});
