// Prints what the official parser says of the documents that are named: one JSON object a document.
// Exit code 1 where one of them has an error.
import { readFile } from "node:fs/promises";
import { Parser, DiagnosticSeverity } from "@asyncapi/parser";

let wrong = false;
for (const path of process.argv.slice(2)) {
  const { document, diagnostics } = await new Parser().parse(await readFile(path, "utf8"));
  const errors = diagnostics.filter((one) => one.severity === DiagnosticSeverity.Error);
  wrong ||= errors.length > 0 || document === undefined;
  const channels = document?.channels().all() ?? [];
  console.log(JSON.stringify({
    errors: errors.map((one) => `${one.path.join(".")}: ${one.message}`),
    addresses: channels.map((one) => one.address()),
    priced: channels.filter((one) => one.extensions().get("x-privacy") !== undefined).length,
  }));
}
process.exit(wrong ? 1 : 0);
