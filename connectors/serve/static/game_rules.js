// The rules of the game against the clock: which questions come, how long, what an answer is worth, and the leaderboard of
// this browser. Time and storage are given; nothing here is sent anywhere.

/** Milliseconds that questions may be open in a game, all in all. */
export const ALLOTTED = 300_000;
/** Milliseconds after which an answer is no longer fast. */
export const FAST = 60_000;
const FULL = 100;
/** Most points for speed; points for each earlier question, and for how many at most. */
const SPEED = 50;
const EACH = 10;
const EARLIER = 5;
/** Rounds by which games begin apart. */
const APART = 3;
const BOARD = "tacet-detective";
const KEPT = 10;
const NAME = 24;

/** The nth question (from 0) of the game that comes after `games` others: its round and the place of its task. */
export function questionAt(n, games, rounds, tasks) {
  const first = (games * APART) % rounds;
  return { round: (first + Math.floor(n / tasks)) % rounds, task: n % tasks };
}

/** What an answer is worth: `accuracy` 0 to 100, given after `took` ms, with `earlier` questions of the game that had points. */
export function worth(accuracy, took, earlier) {
  if (!(accuracy > 0)) return { accuracy: 0, speed: 0, before: 0, total: 0 };
  const speed = Math.floor(SPEED * Math.min(1, accuracy / FULL) * Math.max(0, 1 - Math.max(0, took) / FAST));
  const before = EACH * Math.min(EARLIER, earlier);
  return { accuracy, speed, before, total: accuracy + speed + before };
}

/** A clock that runs while a question is open. `now` is monotonic, in ms. */
export function stopwatch(now = () => performance.now(), allotted = ALLOTTED) {
  let used = 0;
  let since = null;
  const open = () => (since === null ? 0 : Math.max(0, now() - since));
  return {
    start() { since ??= now(); },
    /** Stop; returns for how long it ran since it was started. */
    stop() {
      const took = open();
      used += took;
      since = null;
      return took;
    },
    left: () => Math.max(0, allotted - used - open()),
  };
}

/** "4:07", rounded up, so that it shows 0:00 only when there is nothing left. */
export function minutes(left) {
  const seconds = Math.ceil(left / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** A name as it is kept: without characters that are not seen or that turn text around, and not long. */
export function cleaned(name) {
  return [...String(name).replace(/\p{C}/gu, "").replace(/\s+/gu, " ").trim()].slice(0, NAME).join("").trim();
}

/** How many games this browser has seen, and the best of them; what is stored is read as anybody may have written it. */
export function readBoard(storage) {
  try {
    const { games, entries } = JSON.parse(storage.getItem(BOARD));
    const whole = (n, most) => Number.isInteger(n) && n >= 0 && n <= most;
    const good = (each) => typeof each?.name === "string" && typeof each.epsilon === "string" && whole(each.points, 1e6) && whole(each.answers, 1e3);
    const told = (each) => ({ name: cleaned(each.name), epsilon: each.epsilon.slice(0, 8), points: each.points, answers: each.answers });
    return { games: whole(games, 1e9) ? games : 0, entries: Array.isArray(entries) ? entries.filter(good).slice(0, KEPT * KEPT).map(told) : [] };
  } catch {
    return { games: 0, entries: [] };
  }
}

/** Enter a game; returns the board with it, whether it could be stored or not. */
export function entered(storage, board, entry) {
  const mine = { ...entry, name: cleaned(entry.name) };
  const all = [...board.entries, mine];
  const kept = { games: board.games + 1, entries: all.filter((each) => best(all, each.epsilon).includes(each)) };
  stored(storage, kept);
  return { board: kept, entry: mine };
}

/** The best games at an epsilon, the first of equals before. */
export function best(entries, epsilon) {
  return entries.filter((each) => each.epsilon === epsilon).sort((a, b) => b.points - a.points).slice(0, KEPT);
}

/** Forget all games but that there were some: the next one does not begin with the same questions. */
export function cleared(storage, board) {
  const kept = { games: board.games, entries: [] };
  stored(storage, kept);
  return kept;
}

function stored(storage, board) {
  try {
    storage.setItem(BOARD, JSON.stringify(board));
  } catch {
    // Storage is switched off or full: the board lasts until the page is left.
  }
}
