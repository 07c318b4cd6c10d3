// Interactives without a kernel: the module that anywidget runs in JupyterLab is mounted here on a model that
// lives in the page. The build puts this script into the head, and a call behind every interactive, so that each
// is drawn before anything below it: nothing moves when it comes.
{
  const pageModel = (state) => {
    const listeners = new Map();
    const emit = (event) => (listeners.get(event) ?? []).forEach((callback) => callback());
    return {
      get: (name) => state[name],
      set(name, value) {
        if (state[name] === value) return;
        state[name] = value;
        emit(`change:${name}`);
        emit("change");
      },
      save_changes() {},
      on: (event, callback) => listeners.set(event, [...(listeners.get(event) ?? []), callback]),
      off: (event, callback) =>
        listeners.set(
          event,
          (listeners.get(event) ?? []).filter((other) => callback && other !== callback),
        ),
    };
  };

  globalThis.sdlMount = (place) => {
    const model = pageModel(JSON.parse(place.querySelector("script").textContent));
    const el = document.createElement("div");
    place.replaceChildren(el);
    place.sdlModel = model;
    globalThis.sdlInteractives[place.dataset.module].render({ model, el });
    const twins = [...document.querySelectorAll(`.sdl-interactive[data-module="${place.dataset.module}"]`)];
    const section = el.querySelector("section[aria-label]");
    if (section && twins.length > 1) section.ariaLabel += ` ${twins.length}`;
    place.dataset.mounted = "true";
  };
}
