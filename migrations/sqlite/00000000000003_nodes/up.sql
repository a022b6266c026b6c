-- What only one node may do at a time: who does it, and until when at most.
CREATE TABLE locks (
    name   TEXT    NOT NULL PRIMARY KEY,
    holder TEXT    NOT NULL,
    until  INTEGER NOT NULL
);
