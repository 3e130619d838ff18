// Program celcosts tells what Kubernetes estimates validation rules to cost.
//
// It reads a JSON list of schemas, each with rules at its root, and prints for each the estimated costs of its rules in their order;
// `record-cel-costs.ts` keeps them for the tests of our own estimate.
package main

import (
	"encoding/json"
	"log"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// estimate is what one rule was found to be.
type estimate struct {
	// Cost is the greatest that one evaluation may cost, Cardinality how often it may be evaluated in one object.
	Cost        uint64 `json:"cost"`
	Cardinality uint64 `json:"cardinality"`
	Error       string `json:"error,omitempty"`
}

func main() {
	var schemas []apiextensionsv1.JSONSchemaProps
	if err := json.NewDecoder(os.Stdin).Decode(&schemas); err != nil {
		log.Fatal(err)
	}
	results := make([][]estimate, len(schemas))
	for i := range schemas {
		estimates, err := estimatesOf(&schemas[i])
		if err != nil {
			log.Fatalf("schema %d: %v", i, err)
		}
		results[i] = estimates
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		log.Fatal(err)
	}
}

func estimatesOf(schema *apiextensionsv1.JSONSchemaProps) ([]estimate, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	declared := model.SchemaDeclType(structural, false)
	compiled, err := cel.Compile(structural, declared, celconfig.PerCallLimit, base, cel.NewExpressionsEnvLoader())
	if err != nil {
		return nil, err
	}
	estimates := make([]estimate, len(compiled))
	for i, result := range compiled {
		estimates[i] = estimate{Cost: result.MaxCost, Cardinality: result.MaxCardinality}
		if result.Error != nil {
			estimates[i].Error = result.Error.Detail
		}
	}
	return estimates, nil
}
