// @ts-check
// The entry of the page: the explorer, the other tabs, the keyboard shortcuts and the tour.
import { FocusFiles } from "./centroids/app.js";
import { FocusRuns } from "./runs/app.js";
import { FocusSql } from "./runs/sql.js";
import { FocusExplorer } from "./shell/app.js";
import { FocusForm } from "./shell/form.js";
import { followJumps } from "./shell/jump.js";
import { installKeys } from "./shell/keys.js";
import { startTourOnFirstVisit } from "./shell/tour.js";
import { FocusTraining } from "./training/app.js";

// The tabs of the page create these; see focus_explorer/web.
Object.assign(window, { FocusExplorer, FocusFiles, FocusForm, FocusRuns, FocusSql, FocusTraining });
installKeys();
followJumps(document);
startTourOnFirstVisit();
