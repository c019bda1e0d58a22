// Asks the engine for what the switches need: the run under them, and what heads do that are shown
// by their effect.
import type { Client } from './engine/client.ts';
import type { SwitchingAnswer } from './engine/switching.ts';
import { headIndex } from './select.ts';
import type { Effects, State, Store } from './state.ts';
import { canSwitch, headSwitches, isSwitched } from './switches.ts';

const restsFor = 60; // ms: while keys follow each other no effect is measured
const drawnEvery = 80; // ms: effects that come meanwhile are drawn together

type Measured = SwitchingAnswer & { kind: 'effect' };

const emptyEffects = (s: State): Effects => ({ run: s.run!, off: s.switches.offMeans, changes: [] });

// Of this run, and of what off means now.
export function effectsOf(s: State): Effects {
  const known = s.effects;
  return known && known.run === s.run && known.off === s.switches.offMeans ? known : emptyEffects(s);
}

// The chosen head first.
export function missingEffects(s: State): number[] {
  if (!s.run || !s.sizes || !canSwitch(s) || s.run.predictions.length === 0) return [];
  const { changes } = effectsOf(s);
  const chosen = s.over ? [] : [headIndex(s)];
  const rest = s.grid === 'effect' ? s.run.heads.map((_, index) => index).filter((index) => !chosen.includes(index)) : [];
  return [...chosen, ...rest].filter((index) => changes[index] === undefined);
}

// Another text is on its way, which will be asked about in turn.
const isRunning = (s: State) => s.run!.text !== s.text && !s.error;

const nameOf = (s: State) => JSON.stringify([headSwitches(s), s.layer]);

// Is what is shown what the switches say?
export function isAnswered(s: State): boolean {
  if (!s.run || !s.sizes || s.error) return true;
  const shown = s.switched;
  const same = shown !== null && shown.run === s.run && JSON.stringify([shown.heads, shown.layer]) === nameOf(s);
  return (!isSwitched(s) || same) && missingEffects(s).length === 0;
}

const heldFor = 128; // tokens: a longer text is not held back

// While switches are on, another text or layer is drawn when it is there under them: a map that is
// as trained for a moment would only flicker.
export function waitsForSwitched(s: State): boolean {
  const shown = s.switched;
  return shown !== null && s.run !== null && s.run.tokens.length <= heldFor && !s.error && isSwitched(s) &&
    (shown.run !== s.run || shown.layer !== s.layer);
}

export function switchAsking(store: Store, client: Client) {
  let [switchedId, switchedName, effectsId, effectsName, timer] = [0, '', 0, '', 0];
  let [measured, drawTimer] = [[] as Measured[], 0];

  function askForSwitched(s: State, newText: boolean): void {
    if (!s.run || !isSwitched(s) || isRunning(s)) return;
    const name = nameOf(s);
    if (name === switchedName && !newText) return;
    switchedName = name;
    switchedId = client.ask({ kind: 'switched', heads: headSwitches(s), layer: s.layer });
  }

  function askForEffects(): void {
    drawEffects();
    const s = store.state;
    const heads = !s.run || isRunning(s) ? [] : missingEffects(s);
    const name = `${s.switches.offMeans} ${heads}`;
    if (heads.length === 0 || name === effectsName) return;
    effectsName = name;
    effectsId = client.ask({ kind: 'effects', heads, off: s.switches.offMeans });
  }

  function drawEffects(): void {
    clearTimeout(drawTimer);
    drawTimer = 0;
    if (measured.length === 0) return;
    const effects = effectsOf(store.state);
    const changes = [...effects.changes];
    const trained = effects.run.predictions[0]!.probability;
    for (const { index, probability } of measured) changes[index] = Math.log(probability) - Math.log(trained);
    measured = [];
    store.update({ effects: { ...effects, changes } });
  }

  store.subscribe((now, before) => {
    const newText = now.run !== before.run;
    const newMeaning = newText || now.switches.offMeans !== before.switches.offMeans;
    if (newText) [switchedId, switchedName] = [0, ''];
    if (newMeaning) [effectsId, effectsName, measured] = [0, '', []];
    askForSwitched(now, newText);
    if (!newMeaning && now.layer === before.layer && now.head === before.head && now.over === before.over &&
        now.grid === before.grid) return;
    clearTimeout(timer);
    timer = window.setTimeout(askForEffects, restsFor);
  });

  return (answer: SwitchingAnswer): void => {
    const { run } = store.state;
    if (!run) return;
    if (answer.kind === 'switched') {
      if (answer.id === switchedId) store.update({ switched: { ...answer.switched, run, heads: answer.heads } });
    } else if (answer.id === effectsId) {
      measured.push(answer);
      if (missingEffects(store.state).length <= measured.length) drawEffects();
      else drawTimer ||= window.setTimeout(drawEffects, drawnEvery);
    }
  };
}
