//! The program with real sandboxes, as its clients see it.

mod access;
mod commands;
mod house;
mod kills;
mod ordinary;
mod sandboxes;
mod stream;
mod terminals;
mod words;
