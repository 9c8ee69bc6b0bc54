package pipeline

// DebtsOf reads the debts out of a state record, for whoever sums up what is owed. Its error is a record of a version, or with a kind of debt, that
// is not known: what it says must not be taken for nothing.
func DebtsOf(state []byte) ([]Debt, error) {
	s, err := parseState(state)
	if err != nil {
		return nil, err
	}
	return s.Debts, nil
}
