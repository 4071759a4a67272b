// Rows of records as objects, and the release that shows each place of a site.

import { nodeName } from "./format.js";
import { own } from "./own.js";
import { strings } from "./strings.js";

/** Rows (arrays beside their columns, or objects) as objects, with `from` and `to` in milliseconds. */
export function objects(columns, rows) {
  return rows.map((row) => {
    const found = Array.isArray(row) ? Object.fromEntries(columns.map((name, i) => [name, row[i]])) : { ...row };
    found.from = Date.parse(found.start);
    found.to = Date.parse(found.end);
    return found;
  });
}

/** Rows by node, each in the order of time. */
export function byNode(rows) {
  const found = new Map();
  for (const row of rows) {
    if (!found.has(row.node)) found.set(row.node, []);
    found.get(row.node).push(row);
  }
  return found;
}

/**
 * The counts of a site for a reader, from all releases: each place comes from the first release that publishes it.
 *
 * Returns `nodes` (all published places, the building first, floors from the top down), `releases`, `of(node)` (its release, or
 * null), `capacity(node)`, and `byRelease(nodes)` (pairs of a release and its share of the nodes).
 */
export function countsOf(releases, audience, site) {
  const mine = countReleases(releases, audience, site);
  const source = new Map();
  for (const release of mine) for (const node of publishedNodes(release, site)) if (!source.has(node)) source.set(node, release);
  const nodes = ["building", ...fromTheTop(site).map((floor) => `floor:${floor.floor}`), ...fromTheTop(site).flatMap((floor) => floor.zones.map((zone) => `zone:${zone.zone}`))];
  const of = (node) => source.get(node) ?? null;
  return {
    nodes: nodes.filter((node) => source.has(node)), releases: mine, of,
    capacity: (node) => (of(node) === null ? null : capacityOf(node, of(node), site)),
    byRelease: (some) => mine.map((release) => [release, some.filter((node) => of(node) === release)]).filter(([, found]) => found.length),
  };
}

/** The count releases of a site for an audience; the one with most places first. */
function countReleases(releases, audience, site) {
  const places = (release) => (release.levels.includes("zone") ? own(release.zones, site.site)?.length ?? 0 : 0) + release.levels.length;
  return releases
    .filter((release) => release.audience === audience && release.query === "count" && release.sites.includes(site.site))
    .sort((a, b) => places(b) - places(a));
}

/** The heat map of a release: the release with its colours; undefined if there is none. */
export function heatOf(release, releases) {
  return releases.find((each) => each.query === "heatmap" && each.audience === release.audience && each.base === release.release);
}

/** The release that estimates people from a release; undefined if there is none. */
export function peopleOf(release, releases) {
  return releases.find((each) => each.query === "people" && each.audience === release.audience && each.base === release.release);
}

/** Which zones of a site a release counts, as objects of the site's floors. */
function countedZones(release, site) {
  const counted = new Set(own(release?.zones, site.site) ?? []);
  return site.floors.flatMap((floor) => floor.zones).filter((zone) => counted.has(zone.zone));
}

/** The nodes that a release publishes of a site, in no particular order. */
function publishedNodes(release, site) {
  const zones = countedZones(release, site);
  const levels = new Set(release.levels);
  return [
    ...(levels.has("building") ? ["building"] : []),
    ...(levels.has("floor") ? new Set(zones.map((zone) => `floor:${zone.floor}`)) : []),
    ...(levels.has("zone") ? zones.map((zone) => `zone:${zone.zone}`) : []),
  ];
}

/** The capacity of a node: the sum over the zones that the release counts; null if unknown. */
function capacityOf(node, release, site) {
  const [level, name] = node.split(":");
  const zones = countedZones(release, site).filter((zone) => level === "building" || (level === "floor" ? zone.floor === name : zone.zone === name));
  return zones.reduce((sum, zone) => sum + (zone.capacity ?? 0), 0) || null;
}

/** Floors from the highest to the lowest. The service lists them from the bottom up. */
export const fromTheTop = (site) => site.floors.toReversed();

/** All zones of a site. */
export const zonesOf = (site) => site.floors.flatMap((floor) => floor.zones);

/** The name of a zone: from the policy's metadata, or its id. */
export const zoneTitle = (zone) => zone.metadata?.name ?? zone.zone;

/** The name of a floor: from the policy's file of names, or "Floor 2". */
export const floorTitle = (floor) => (floor.name && floor.name !== floor.floor ? floor.name : strings.node.floor(floor.floor));

/** The name of a place of a site: "Building", "Ground floor", "Room 2011". */
export function placeTitle(node, site) {
  const zone = zonesOf(site).find((each) => `zone:${each.zone}` === node);
  if (zone) return zoneTitle(zone);
  const floor = site.floors.find((each) => `floor:${each.floor}` === node);
  return floor ? floorTitle(floor) : nodeName(node);
}
