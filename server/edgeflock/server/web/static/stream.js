// The stream of pictures: connected, lost, connected again by itself.

const AGAIN_MS = 2000;

/** Call `take` with every picture, and `link` with "live", "lost" or "left" (the server has said goodbye). */
export function follow(take, link) {
  let source;
  let left = false;
  const open = () => {
    source = new EventSource("/api/stream");
    source.onopen = () => { left = false; link("live"); };
    source.onmessage = (message) => take(JSON.parse(message.data));
    source.addEventListener("leaving", () => { left = true; link("left"); });
    source.onerror = () => {
      link(left ? "left" : "lost");
      if (source.readyState === EventSource.CLOSED) {  // a browser that does not try again by itself
        source.close();
        setTimeout(open, AGAIN_MS);
      }
    };
  };
  open();
}
