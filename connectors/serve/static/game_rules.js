// The rules of the game against the clock: order of questions, time limit, score of an answer, and the leaderboard of
// this browser. Time and storage are parameters; nothing here is sent anywhere.

/** Total milliseconds for which questions may be open in a game. */
export const ALLOTTED = 300_000;
/** Milliseconds after which an answer gets no points for speed. */
export const FAST = 60_000;
const FULL = 100;
/** Maximum points for speed; points for each earlier answer, and the maximum number of these. */
const SPEED = 50;
const EACH = 10;
const EARLIER = 5;
/** Number of rounds between the starts of consecutive games. */
const APART = 3;
const BOARD = "tacet-detective";
const KEPT = 10;
const NAME = 24;

/** The nth question (from 0) of the game after `games` others: its round and the index of its task. */
export function questionAt(n, games, rounds, tasks) {
  const first = (games * APART) % rounds;
  return { round: (first + Math.floor(n / tasks)) % rounds, task: n % tasks };
}

/** The score of an answer: `accuracy` 0 to 100, after `took` ms, with `earlier` answers of the game that had points. */
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
    /** Stop; returns the time since it was started. */
    stop() {
      const took = open();
      used += took;
      since = null;
      return took;
    },
    left: () => Math.max(0, allotted - used - open()),
  };
}

/** "4:07", rounded up, so that 0:00 appears only at the end. */
export function minutes(left) {
  const seconds = Math.ceil(left / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** A name as it is stored: short, without invisible or direction-changing characters. */
export function cleaned(name) {
  return [...String(name).replace(/\p{C}/gu, "").replace(/\s+/gu, " ").trim()].slice(0, NAME).join("").trim();
}

/** The number of games in this browser, and the best ones. Stored data is validated, because other code may have written it. */
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

/** Add a game; returns the leaderboard with it, even if it could not be stored. */
export function entered(storage, board, entry) {
  const mine = { ...entry, name: cleaned(entry.name) };
  const all = [...board.entries, mine];
  const kept = { games: board.games + 1, entries: all.filter((each) => best(all, each.epsilon).includes(each)) };
  stored(storage, kept);
  return { board: kept, entry: mine };
}

/** The best games at an epsilon; of equal ones the earlier first. */
export function best(entries, epsilon) {
  return entries.filter((each) => each.epsilon === epsilon).sort((a, b) => b.points - a.points).slice(0, KEPT);
}

/** Delete all games but their number, so that the next game has other questions. */
export function cleared(storage, board) {
  const kept = { games: board.games, entries: [] };
  stored(storage, kept);
  return kept;
}

function stored(storage, board) {
  try {
    storage.setItem(BOARD, JSON.stringify(board));
  } catch {
    // Storage is disabled or full: the leaderboard lasts until the page is left.
  }
}
