// The time of an animation. Scenes follow each other; within one, time on the screen is linear in the
// time that is shown.

export interface Scene {
  seconds: number; // shown
  screen: number; // seconds on the screen at speed 1
}
export interface MotionEvent {
  at: number; // shown seconds
  text: string;
}
export interface Timeline {
  scenes: Scene[];
  events: MotionEvent[]; // in order of time
}

const sum = (values: number[]) => values.reduce((all, value) => all + value, 0);
export const shownLength = ({ scenes }: Timeline) => sum(scenes.map((s) => s.seconds));
export const screenLength = ({ scenes }: Timeline) => sum(scenes.map((s) => s.screen));

// The scene at a time of `from`, and the same moment as a time of `to`.
function convert(scenes: Scene[], at: number, from: keyof Scene, to: keyof Scene): [Scene | undefined, number] {
  let passed = 0;
  let result = 0;
  for (const scene of scenes) {
    if (at <= passed + scene[from] || scene === scenes.at(-1)) {
      const part = scene[from] > 0 ? Math.min(1, Math.max(0, (at - passed) / scene[from])) : 0;
      return [scene, result + part * scene[to]];
    }
    passed += scene[from];
    result += scene[to];
  }
  return [undefined, 0];
}
export const shownAt = ({ scenes }: Timeline, screen: number) => convert(scenes, screen, "screen", "seconds")[1];
export const screenAt = ({ scenes }: Timeline, shown: number) => convert(scenes, shown, "seconds", "screen")[1];

// How many times longer the screen takes than what it shows.
export function slowdown({ scenes }: Timeline, screen: number): number {
  const scene = convert(scenes, screen, "screen", "seconds")[0];
  return scene && scene.seconds > 0 ? scene.screen / scene.seconds : 1;
}

// The last event that has happened; -1 before the first.
export function lastEvent({ events }: Timeline, shown: number): number {
  let last = -1;
  while (last + 1 < events.length && (events[last + 1] as MotionEvent).at <= shown * (1 + 1e-9)) ++last;
  return last;
}

// The event that a step forward or back arrives at: steps visit every event, also those that share a
// moment.
export const stepFrom = ({ events }: Timeline, current: number, direction: 1 | -1) =>
  Math.min(events.length - 1, Math.max(-1, current + direction));
