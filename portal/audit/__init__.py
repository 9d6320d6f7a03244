"""The append-only audit trail: every state change, sign-in and refusal, written in the transaction it describes."""
