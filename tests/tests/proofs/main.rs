//! Proofs about every run rather than one: model, search, storms, and stored cases, recordings and tables.

mod callers;
mod corpus;
mod explore;
mod gateway;
mod guarantees;
mod hostile_peer;
mod http;
mod http_client;
mod lanes;
mod model;
mod stateless;
mod traces;
mod transitions;
mod world;
