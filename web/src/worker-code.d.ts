// The code of engine/worker.ts as one text: see build.mjs.
declare module 'worker:code' {
  const code: string;
  export default code;
}
