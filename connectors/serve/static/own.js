// A name that comes from a policy is looked up among what an object holds itself, never among what every object inherits.

export const own = (held, name) => (held && Object.hasOwn(held, name) ? held[name] : undefined);
