// @ts-check
// The entry of a notebook and of a run saved as one HTML file: the views alone, without the page around them.
import { FocusExplorer } from "./shell/app.js";

Object.assign(window, { FocusExplorer });
