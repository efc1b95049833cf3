// @ts-check
// The table of the views, in the order of their tabs.
import { CompareView } from "../compare/view.js";
import { GroupsView } from "../groups/view.js";
import { MapView } from "../map/view.js";
import { SparsityView } from "../sparsity/view.js";
import { StatisticsView } from "../statistics/view.js";
import { TokensView } from "../tokens/view.js";

export const VIEWS = {
  tokens: TokensView,
  groups: GroupsView,
  map: MapView,
  sparsity: SparsityView,
  compare: CompareView,
  statistics: StatisticsView,
};
