// The rules for the browser scripts, those of the documentation, and their tests. Import cycles are checked by
// tests/explorer/web/test_browser.py.
import js from "@eslint/js";
import globals from "globals";

const LENGTH = { code: 120, ignoreUrls: true };

/** One rule per hazard: what is undefined, unused, reassigned or compared loosely. */
const rules = {
  "max-len": ["error", LENGTH],
  eqeqeq: "error",
  "no-implicit-globals": "error",
  "no-restricted-globals": ["error", "name", "event", "status", "top", "parent", "self", "length", "origin", "screen"],
  "no-restricted-syntax": [
    "error",
    {
      selector: "ExportDefaultDeclaration",
      message: "Export by name: the linker of the page takes no default export.",
    },
    { selector: "ExportAllDeclaration", message: "Export by name: the linker of the page takes no re-export." },
    { selector: "ImportExpression", message: "Import statically: the page loads one script." },
  ],
  "no-unused-vars": ["error", { args: "after-used", argsIgnorePattern: "^_", caughtErrors: "all" }],
  "no-var": "error",
  "object-shorthand": "error",
  "prefer-const": "error",
};

export default [
  { ignores: ["**/*.d.ts"] },
  js.configs.recommended,
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  {
    files: ["assets/js/**/*.js", "docs/scripts/**/*.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: { ...globals.browser, Plotly: "readonly" } },
    rules,
  },
  {
    files: ["tests/js/**/*.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: globals.node },
    rules: { ...rules, "no-restricted-syntax": "off" },
  },
];
